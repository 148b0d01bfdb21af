/* Layout texts: parsed, drawn, and put through the algebra with each other. */
#include <stdint.h>
#include <stdlib.h>

#include "tensor/layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct strbuf out = {.limit = 1 << 24};
    struct layout t[LAYOUT_MAX_MODES], r;
    struct layout_tma box;
    struct str text = {(const char *)data, size};
    int n = 0;
    layout_draw_command(text, size % 2, size % 3 == 0, &out, NULL);
    if (layout_parse_tiler(text, t, &n, NULL) == ROSE_OK)
        for (int i = 0; i + 1 < n; i++) {
            layout_print(&t[i], &out);
            if (layout_compose(&t[i], &t[i + 1], &r, NULL) == ROSE_OK &&
                (layout_size(&r) != layout_size(&t[i + 1]) || layout_cosize(&r) < 1))
                abort();
            layout_logical_divide(&t[i], &t[i + 1], &r, NULL);
            layout_zipped_divide(&t[i], &t[i + 1], n - i - 1, &r, NULL);
            layout_tiled_divide(&t[i], &t[i + 1], n - i - 1, &r, NULL);
            layout_blocked_product(&t[i], &t[i + 1], &r, NULL);
            layout_raked_product(&t[i], &t[i + 1], &r, NULL);
            layout_common_vector(&t[i], &t[i + 1]);
            layout_vector_width(&t[i], 16, 16, 32);
            int64_t tile[LAYOUT_MAX_NODES];
            for (int k = 0; k < layout_rank(&t[i]); k++) tile[k] = (int64_t)(data[(size_t)k % size] % 64) + 1;
            layout_tma_box(&t[i], 2, tile, layout_rank(&t[i]), 128, &box, NULL);
        }
    strbuf_free(&out);
    return 0;
}
