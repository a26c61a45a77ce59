# Sourced by what runs cargo. What rustup installed for this user is found even where its folder is not in PATH.
if ! command -v cargo >/dev/null 2>&1 && [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ]; then
  export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
fi
# rust-toolchain.toml pins a version, and rustup downloads it even where the same
# version is installed under another name, such as stable: then that one is taken.
if [ -z "${RUSTUP_TOOLCHAIN:-}" ] && command -v rustup >/dev/null 2>&1; then
  toolchains=${RUSTUP_HOME:-$HOME/.rustup}/toolchains
  pinned=$(sed -n 's/^channel = "\(.*\)"$/\1/p' rust-toolchain.toml)
  found=""
  for rustc in "$toolchains/$pinned"-*/bin/rustc "$toolchains"/*/bin/rustc; do
    if [ -x "$rustc" ] && "$rustc" --version | grep -qF "rustc $pinned "; then
      found=$(basename "${rustc%/bin/rustc}")
      break
    fi
  done
  case "$found" in
    "" | "$pinned"-*) ;;
    *) export RUSTUP_TOOLCHAIN="$found" ;;
  esac
  unset toolchains pinned found rustc
fi
