/* config_file.h: --config FILE.yaml: options from a file. One mapping, whose keys are the long
 * names of options:
 *
 *     model: /models/Phi-4-mini-instruct
 *     port: 8001
 *     max-model-len: 16k
 *     enable-prefix-caching: false
 *     served-model-name: [phi, phi-4-mini]
 *     override-generation-config: {temperature: 0.2}
 *
 * What the command line gives stays; an empty value (or null) is as if the line were not there. */
#ifndef PHI_CLI_CONFIG_FILE_H
#define PHI_CLI_CONFIG_FILE_H

#include "cli/options.h"

/* Returns -1 to go on, else the exit code after an error line that names the file and the line. */
int cli_config_read(const char *path, struct cli_args *args, void *flags);

#endif
