/*
 * The real libpq, to compare with: reads requests from standard input, one per line, strings in hexadecimal.
 *
 *   parse STRING     what PQconninfoParse makes of it
 *   connect STRING   what PQconnectStart makes of it with the environment, and the password it would send
 *
 * Answers `= KEYWORD VALUE ...` or `! MESSAGE`. The library is the argument; exit 3 when it cannot be loaded.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
	char *keyword, *envvar, *compiled, *val, *label, *dispchar;
	int dispsize;
} Option;

static Option *(*parse)(const char *, char **);
static void *(*start)(const char *);
static Option *(*options)(void *);
static char *(*password)(void *);
static char *(*message)(void *);
static void (*finish)(void *);

static void put_hex(const char *text)
{
	putchar(' ');
	if (!*text)
		putchar('-');
	for (; *text; text++)
		printf("%02x", (unsigned char)*text);
}

static char *from_hex(const char *hex)
{
	size_t n = strlen(hex) / 2;
	char *text = calloc(n + 1, 1);
	for (size_t i = 0; i < n; i++) {
		unsigned byte;
		sscanf(hex + 2 * i, "%2x", &byte);
		text[i] = (char)byte;
	}
	return text;
}

static void put_options(const Option *o)
{
	putchar('=');
	for (; o->keyword; o++)
		if (o->val) {
			put_hex(o->keyword);
			put_hex(o->val);
		}
}

static void answer(const char *verb, const char *text)
{
	if (strcmp(verb, "parse") == 0) {
		char *error = NULL;
		Option *o = parse(text, &error);
		if (o) {
			put_options(o);
		} else {
			putchar('!');
			put_hex(error ? error : "out of memory");
		}
	} else {
		void *conn = start(text);
		Option *o = options(conn);
		char *pass = password(conn);
		int known = 0;
		for (Option *each = o; each->keyword; each++)
			known |= each->val && strcmp(each->keyword, "port") == 0;
		if (known) {
			put_options(o);
			put_hex("(password)");
			put_hex(pass ? pass : "");
			put_hex("(message)");
			put_hex(message(conn));
		} else {
			putchar('!');
			put_hex(message(conn));
		}
		finish(conn);
	}
	putchar('\n');
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static char line[1 << 20], verb[16], hex[1 << 20];
	void *lib = dlopen(argc > 1 ? argv[1] : "libpq.so.5", RTLD_NOW);
	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		return 3;
	}
	parse = (Option * (*)(const char *, char **)) dlsym(lib, "PQconninfoParse");
	start = (void *(*)(const char *))dlsym(lib, "PQconnectStart");
	options = (Option * (*)(void *)) dlsym(lib, "PQconninfo");
	password = (char *(*)(void *))dlsym(lib, "PQpass");
	message = (char *(*)(void *))dlsym(lib, "PQerrorMessage");
	finish = (void (*)(void *))dlsym(lib, "PQfinish");
	while (fgets(line, sizeof line, stdin)) {
		hex[0] = '\0';
		if (sscanf(line, "%15s %1048570s", verb, hex) < 1)
			continue;
		char *text = from_hex(strcmp(hex, "-") == 0 ? "" : hex);
		answer(verb, text);
		free(text);
	}
	return 0;
}
