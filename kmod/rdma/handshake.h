/* SPDX-License-Identifier: GPL-2.0-only */
/* Declares the handshake: the key, and what proves that a side has it. */
#ifndef TLR_HANDSHAKE_H
#define TLR_HANDSHAKE_H

#include "connection.h"

/* Fills in the transcript: the target's nonce is new. `hello` is the observer's. */
void tlr_handshake_begin(struct tlr_connection *connection, const struct tlr_hello *hello);
/* Whether the answer proves the key: 0, -EACCES or another error. */
int tlr_handshake_check(const struct tlr_connection *connection);
/* Puts the target's code into the table: 0 or an error. */
int tlr_handshake_sign(struct tlr_connection *connection);
bool tlr_handshake_has_key(void);
/* Takes the key as text: 0 or -EINVAL. */
int tlr_handshake_set_key(const char *text);
int tlr_handshake_init(void);
void tlr_handshake_exit(void);

#endif
