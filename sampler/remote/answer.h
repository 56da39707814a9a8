/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Declares the answers to peek's requests for memory, by messages. */
#ifndef SAMPLER_ANSWER_H
#define SAMPLER_ANSWER_H

struct source;

/* Until the input ends, which ends the program. -ENODEV: the target is gone; or another error. */
int answer_requests(struct source *source);

#endif
