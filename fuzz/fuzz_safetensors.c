/* fuzz_safetensors.c: any bytes as a safetensors file: an error, or tensors that can be read, found
 * and written again. */
#include "formats/safetensors.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void require(bool law)
{
    if (!law)
        abort();
}

/* Opens the same bytes as a file, touches every byte and looks every tensor up. */
static void check_file(const char *path)
{
    struct phi_safetensors *st;
    volatile unsigned char sum = 0;
    require(phi_safetensors_open_file(path, &st, NULL) == PHI_OK);
    for (size_t i = 0; i < phi_safetensors_n_tensors(st); i++) {
        const struct phi_tensor *t = phi_safetensors_at(st, i);
        require(phi_safetensors_find(st, t->name) == t);
        for (size_t k = 0; k < t->n_bytes; k++)
            sum = (unsigned char)(sum + ((const unsigned char *)t->data)[k]);
    }
    phi_safetensors_close(st);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct phi_error err = {0};
    enum phi_status status = phi_safetensors_check_bytes(data, n, &err);
    if (status != PHI_OK) {
        require(err.code == status && err.text[0] != '\0' && !strchr(err.text, '\n'));
        return 0;
    }
    int fd = memfd_create("safetensors", MFD_CLOEXEC);
    char path[64];
    require(fd >= 0 && write(fd, data, n) == (ssize_t)n);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    check_file(path);
    close(fd);
    return 0;
}
