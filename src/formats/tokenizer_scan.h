/* tokenizer_scan.h: a tokenizer.json is 99 % vocabulary and merges: hundreds of thousands of short
 * strings. Building a JSON tree of them takes most of a second and tens of megabytes, so these two
 * values are cut out of the text and read by a small pull scanner, and only the rest becomes a
 * tree. */
#ifndef PHI_FORMATS_TOKENIZER_SCAN_H
#define PHI_FORMATS_TOKENIZER_SCAN_H

#include "base/buf.h"
#include "formats/json.h"

struct phi_tokenizer_json {
    json_t *root; /* owned; model.vocab and model.merges are the integer 0 in it where they were cut
                     out */
    struct phi_str vocab; /* views of the text; data is NULL where the member is missing */
    struct phi_str merges;
};

/* The result is strictly checked JSON except for what stands inside vocab and merges. */
enum phi_status phi_tokenizer_json_open(struct phi_str text, const char *name,
                                        struct phi_tokenizer_json *out, struct phi_error *err);
void phi_tokenizer_json_close(struct phi_tokenizer_json *j);

/* Reads JSON tokens one by one. Errors name the member and the byte within `text`. */
struct phi_scan {
    const char *at, *end, *begin;
    const char *name;      /* the member, for errors */
    struct phi_buf string; /* holds a string that had escapes */
};

void phi_scan_init(struct phi_scan *s, struct phi_str text, const char *name);
void phi_scan_deinit(struct phi_scan *s);

/* Skips blanks; true and past it when the next byte is c. */
bool phi_scan_accept(struct phi_scan *s, char c);
enum phi_status phi_scan_expect(struct phi_scan *s, char c, struct phi_error *err);

/* After an element: *more tells whether a comma follows; otherwise `close` must, and is passed. */
enum phi_status phi_scan_next(struct phi_scan *s, char close, bool *more, struct phi_error *err);

/* A string. The view is into the text or into s->string, and good until the next call. Escapes are
 * resolved; control characters are refused. Valid UTF-8 is the caller's to check. */
enum phi_status phi_scan_string(struct phi_scan *s, struct phi_str *out, struct phi_error *err);

/* A non-negative integer of at most `hi`. */
enum phi_status phi_scan_integer(struct phi_scan *s, int32_t hi, int32_t *out,
                                 struct phi_error *err);

/* Nothing but blanks may be left. */
enum phi_status phi_scan_end(struct phi_scan *s, struct phi_error *err);

/* PHI_ERR_FORMAT with the current position. */
enum phi_status phi_scan_fail(const struct phi_scan *s, struct phi_error *err, const char *what);

#endif
