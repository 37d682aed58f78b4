/* waker.h: what the Python package needs beside phidelity.h, inside the same shared library.
 *
 * A waker lets one thread wait for many requests. The engine's thread lists what has news and makes
 * a descriptor readable; the reader waits for that descriptor in poll(2), where Ctrl-C reaches it,
 * or in asyncio's loop, and takes the list. No Python code ever runs on the engine's thread, so
 * that a step never waits for the interpreter's lock. */
#ifndef PHI_PYTHON_WAKER_H
#define PHI_PYTHON_WAKER_H

#include "phidelity.h"

struct phi_waker;

enum phi_status phi_waker_create(struct phi_waker **out, struct phi_error *err);

/* No request of it may be live any more. NULL is fine. */
void phi_waker_destroy(struct phi_waker *w);

/* Readable while something can be taken. */
int phi_waker_fd(const struct phi_waker *w);

/* phi_request_submit, whose news come to the waker under `id`: each event, or only the end. The
 * notify of `o` is not looked at. */
enum phi_status phi_waker_submit(struct phi_waker *w, int64_t id, bool each_event,
                                 struct phi_engine *e, const int32_t *prompt_ids, size_t n_prompt,
                                 const struct phi_sampling *s, const struct phi_request_options *o,
                                 struct phi_request **out, struct phi_error *err);

struct phi_news {
    int64_t id;
    bool ended; /* nothing more will come from this request */
};

/* Takes at most max_news of what there is, oldest first, without waiting. Returns how many. */
size_t phi_waker_take(struct phi_waker *w, struct phi_news *news, size_t max_news);

/* Requests whose end has not been listed yet; 0: the engine will not touch the waker again. */
size_t phi_waker_n_live(struct phi_waker *w);

/* Lines of the library's log of at least this level (as of phi_set_log) go to standard error. */
void phi_python_log(int least_level);

#endif
