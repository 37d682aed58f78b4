/* load_strategy.h: how weights come from their files into memory that is read at full speed: the four
 * strategies of enum phi_load_strategy, over base/huge_files.h. */
#ifndef PHI_ENGINE_LOAD_STRATEGY_H
#define PHI_ENGINE_LOAD_STRATEGY_H

#include "engine/model_api.h"

/* What is done before the network is bound: PHI_LOAD_PREFETCH and PHI_LOAD_EAGER, with the progress of
 * `o`. PHI_ERR_INVALID for what is no strategy; PHI_ERR_MEMORY when the weights do not fit. */
enum phi_status phi_load_before(struct phi_model *m, const struct phi_model_options *o,
                                struct phi_error *err);

/* What goes on behind an opened model: PHI_LOAD_AUTO's thread, for phi_huge_thread_stop; NULL when there
 * is nothing to do. */
struct phi_huge_thread *phi_load_behind(const struct phi_model *m, enum phi_load_strategy s);

#endif
