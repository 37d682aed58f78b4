/* phidelity.h: the one public header.
 *
 * How to think of it: a *model* is an opened checkpoint folder (weights mapped, tokenizer and chat
 * template ready; immutable, shared by everyone). An *engine* owns one model's KV memory and runs
 * requests on it. A *request* is one prompt with its sampling parameters; it yields events until it
 * ends. Everything is addressed by handles; the structs below are plain values that the caller owns.
 *
 * Errors: a function that can fail returns PHI_OK or a negative enum phi_status and, when its last
 * argument `err` is not NULL, fills it with a code and one line of text that names the file, tensor,
 * field or byte. The library never exits, aborts on bad input, or prints.
 */
#ifndef PHIDELITY_H
#define PHIDELITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum phi_status {
    PHI_OK = 0,
    PHI_ERR_INVALID = -1,     /* an argument or request field is out of range */
    PHI_ERR_IO = -2,          /* a file cannot be opened, read or mapped */
    PHI_ERR_FORMAT = -3,      /* a file's content is malformed */
    PHI_ERR_UNSUPPORTED = -4, /* well-formed, but not something this program runs */
    PHI_ERR_MEMORY = -5,      /* an allocation failed or would exceed its limit */
    PHI_ERR_TOO_LONG = -6,    /* prompt or context exceeds what the model or the KV pool can hold */
    PHI_ERR_CANCELLED = -7,   /* the caller cancelled */
    PHI_ERR_NAN = -8,         /* the model produced NaN or infinite logits */
    PHI_ERR_INTERNAL = -9     /* a bug; the text says where */
};

struct phi_error {
    enum phi_status code;
    char text[1024]; /* one line, UTF-8, no trailing newline */
};

/* How matrix inputs and weights are held; docs/NUMERICS.md. PHI_AUTO: as the checkpoint says. */
enum phi_dtype { PHI_AUTO = 0, PHI_FLOAT32 = 1, PHI_BFLOAT16 = 2, PHI_FLOAT16 = 3 };

#ifdef __cplusplus
}
#endif
#endif
