/* The tables of slots: the family's and the overrides that arch.c's rows name. */
#ifndef ROSE_MODEL_SLOTS_H
#define ROSE_MODEL_SLOTS_H

#include "model/arch.h"

extern const struct slot_row family_slots[], gemma_slots[], mixtral_slots[];
extern const struct slot_row bert_slots[], roberta_slots[], token_head_slots[], distilbert_slots[], mpnet_slots[], modernbert_slots[], nomic_slots[], nomic_older_slots[], jina_slots[],
    jina_code_slots[];
/* The row of a slot in a table ended by SLOT_COUNT, or NULL. */
const struct slot_row *slot_find(const struct slot_row *rows, enum slot slot);

#endif
