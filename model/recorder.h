/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Makes rows of counts. All counts so far are one array of named columns; a row is the difference
 * between a region's begin and its end, as a line of JSON. The first line of the output describes
 * the columns (docs/model.md). Each line is written at once, so that no row is lost when a guest
 * dies.
 */
#ifndef TRAPLESS_MODEL_RECORDER_H
#define TRAPLESS_MODEL_RECORDER_H

#include "hierarchy.h"
#include "ledger.h"

#include <stdio.h>

#define TLM_FORMAT_VERSION 1

/* Of one mode, counted before any structure. */
struct tlm_mode_counts {
	uint64_t instructions;
	uint64_t reads;
	uint64_t writes;
	uint64_t fetches;  /* lines of code entered, TLM_FETCH_LINE bytes each */
	uint64_t unplaced; /* accesses to devices, which are not modelled */
};

#define TLM_FETCH_LINE 64
#define TLM_COLUMNS_MAX (2 * (5 + 7 * TLM_STRUCTURES_MAX) + TLM_CROSSINGS + 1)

struct tlm_recorder {
	FILE *output;
	struct tlm_hierarchy *hierarchy;
	struct tlm_mode_counts modes[2]; /* user, kernel */
	struct tlm_ledger ledger;
	uint64_t label;
	uint64_t rows;
	uint64_t before_user; /* the kernel's instructions before a region comes to user mode */
	uint64_t kernel_begun;
	bool awaits_user; /* the open region has not been in user mode yet */
	bool open;    /* a region is */
	bool failed;  /* to write; said once */
	uint64_t begun[TLM_COLUMNS_MAX];
};

/* Write the first line. `memory` and the structures are the hierarchy's. */
void tlm_recorder_start(struct tlm_recorder *recorder, int qemu_api);
void tlm_recorder_begin(struct tlm_recorder *recorder);
void tlm_recorder_end(struct tlm_recorder *recorder);
/* A block of user mode begins; to be called where `awaits_user` is set. */
void tlm_recorder_enter_user(struct tlm_recorder *recorder);
/* Something that a reader of the rows should know. */
void tlm_recorder_event(struct tlm_recorder *recorder, const char *text);
/* Write the last line. */
void tlm_recorder_stop(struct tlm_recorder *recorder);

#endif
