/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Declares the taking of one sample: all fields of a plan, each group by its rule.
 */
#ifndef SAMPLER_SAMPLE_H
#define SAMPLER_SAMPLE_H

#include "plan.h"
#include "row.h"
#include "source.h"

/*
 * Fills `data` (plan->data_bytes) and the bitmaps, flags and retries of `row`. 0, or -ENODEV when
 * the source is gone; a field that cannot be read becomes zeros, and its group a bit in `absent`.
 */
int sample_take(const struct plan *plan, struct source *source, struct row *row, uint8_t *data);

#endif
