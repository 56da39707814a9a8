/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Declares the key that an observer and its target have in common, and the codes made with it. */
#ifndef SAMPLER_RDMA_KEY_H
#define SAMPLER_RDMA_KEY_H

#include <linux/trapless_rdma.h>
#include <stddef.h>
#include <stdint.h>

typedef unsigned char *hmac_function(const void *method, const void *key, int key_bytes,
				     const unsigned char *data, size_t bytes, unsigned char *into,
				     unsigned int *into_bytes);

struct key {
	uint8_t bytes[TLR_KEY_BYTES];
	hmac_function *hmac;
	const void *sha256;
};

/* Reads the key's file; 0 or -errno with `error` filled. */
int key_load(struct key *key, const char *path, char *error);
/* The code of the transcript with that label, and of `more` bytes of the table behind it. */
void key_code(const struct key *key, const char *label, const struct tlr_transcript *transcript,
	      const void *table, size_t more, uint8_t *code);
/* An address as the transcript has it. */
void key_address(const void *address, uint8_t *into);

#endif
