/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Makes a program from others. It owns the corpus: programs that reached something that none before
 * them had reached.
 */
#ifndef TL_FUZZ_MUTATE_H
#define TL_FUZZ_MUTATE_H

#include "fuzzed_program.h"

#define CORPUS_MAX 4096

struct corpus {
	struct input inputs[CORPUS_MAX];
	uint32_t count;
};

void corpus_add(struct corpus *corpus, const struct input *input);

/* A program from one or two of the corpus, or from nothing. */
struct input corpus_mutate(const struct corpus *corpus, struct random *random);

#endif /* TL_FUZZ_MUTATE_H */
