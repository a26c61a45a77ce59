# Each target installs what it needs (tools/setup) and can be run first on a fresh machine.

PREFIX ?= /usr/local
INTO = $(DESTDIR)$(PREFIX)
CARGO ?= cargo
# Where tools/setup has rustup put cargo, on a machine that had none.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin
SOAK_SECONDS ?= 300
TOOLCHAIN := $(shell . tools/toolchain.sh; echo $$RUSTUP_TOOLCHAIN)
ifneq ($(TOOLCHAIN),)
export RUSTUP_TOOLCHAIN := $(TOOLCHAIN)
endif

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 22

demo: ## the whole product on a throwaway cluster, and what it saves
	@tools/setup demo
	@echo "building pgshrink and its demo (minutes at the first time)"
	@$(CARGO) build --quiet --release --locked -p pgshrink-cli -p pgshrink-demo
	@tools/extensions 15
	@target/release/pgshrink-demo --report .

picture: ## the README's picture, from the figures that make demo wrote
	@mkdir -p docs/figures
	@cp report.json docs/figures/demo.json
	@target/release/pgshrink advise --figures docs/figures/demo.json --svg docs/figures/demo.svg

build: ## target/release/pgshrink, and the library of pgshrink cfs exec
	@tools/setup build
	$(CARGO) build --release --locked -p pgshrink-cli -p pgshrink-cfs-exec

build-extensions: ## the extensions zson and cfs, for the server of PG_CONFIG
	@tools/setup extensions
	@tools/extensions build

# Only when it is absent: sudo make install must not need root's own Rust.
target/release/pgshrink target/release/libpgshrink_cfs_exec.so:
	@$(MAKE) build

docs: ## the documentation as a searchable site, in target/docs/book, and a look at it
	@tools/setup docs
	@tools/docs

check: ## format, lints, source rules, unit tests, licences
	@tools/setup build
	@tools/check

test: ## unit tests, and tests against real servers and clients
	@tools/setup test
	@tools/test

soak: ## the long tests and versions that make test leaves out, Miri, then SOAK_SECONDS of fuzzing per decoder
	@tools/setup soak
	$(CARGO) test --release --workspace --locked -- --ignored --test-threads=1 --nocapture
	PGSHRINK_TEST_MAJORS=all tools/test
	$(CARGO) test --manifest-path extensions/Cargo.toml --target-dir target --locked -p pgshrink-extension-tests --test it -- \
	  --ignored --test-threads=1 --nocapture
	tools/fetch-servers 17
	tools/extensions 17
	PGSHRINK_TEST_MAJORS=16,17 $(CARGO) test --manifest-path extensions/Cargo.toml --target-dir target --locked \
	  -p pgshrink-extension-tests --test it -- cfs:: compressed:: exec:: live:: power:: twin:: --skip suite
	PGSHRINK_TEST_MAJORS=16,17 $(CARGO) test --locked -p pgshrink-advisor --test it -- --skip browser
	PGSHRINK_TEST_MAJORS=16,17 $(CARGO) test --locked -p pgshrink-cli --test it -- advise_
	tools/docs
	tools/miri
	fuzz/run $(SOAK_SECONDS)

bench: ## sizes, speed and memory against "off" and the rivals, in one run
	@tools/setup bench
	@$(CARGO) build --quiet --release --locked -p pgshrink-cli
	@tools/extensions 15
	bench/run

install: target/release/pgshrink target/release/libpgshrink_cfs_exec.so ## the program, manual pages, completions, systemd units and samples, below $(PREFIX) (DESTDIR is respected)
	@PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) tools/install program

install-zson: ## the extension zson, into the server of PG_CONFIG (DESTDIR is respected)
	@tools/extensions install zson

install-cfs: ## the extension cfs, into the server of PG_CONFIG (DESTDIR is respected)
	@tools/extensions install cfs

uninstall: ## removes what make install, install-zson and install-cfs have installed (PREFIX, DESTDIR and PG_CONFIG as then)
	@PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) tools/install remove $(WHAT)

deb: ## Debian packages, in target/debian
	@tools/setup deb
	@$(CARGO) build --release --locked -p pgshrink-cli -p pgshrink-cfs-exec
	@tools/extensions 15
	@tools/deb

clean: ## removes everything built or fetched
	$(CARGO) clean

.PHONY: help demo picture build build-extensions docs check test soak bench install install-zson install-cfs uninstall deb clean
