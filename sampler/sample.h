/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * sample.h - takes one sample: all fields of a plan, each group under its rule. It owns what
 * "torn" and "absent" mean, and nothing of time.
 */
#ifndef SAMPLER_SAMPLE_H
#define SAMPLER_SAMPLE_H

#include "plan.h"
#include "row.h"
#include "source.h"

/*
 * Fills `data` (plan->data_bytes) and the bitmaps, flags and retries of `row`. 0, or -ENODEV when
 * the source is gone; a field that cannot be read is zeros and a bit in `absent`.
 */
int sample_take(const struct plan *plan, struct source *source, struct row *row, uint8_t *data);

#endif
