// SPDX-License-Identifier: GPL-2.0-only
/*
 * Proves that a peer has the key, without sending it. This file owns the key and the codes of
 * trapless_rdma.h. Both nonces and both addresses are in each code, so that an answer is worth
 * nothing on another connection.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <crypto/algapi.h>
#include <crypto/hash.h>
#include <linux/err.h>
#include <linux/kernel.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/mutex.h>
#include <linux/random.h>
#include <linux/string.h>
#include <net/ipv6.h>

#include "compat/moved_headers.h"
#include "handshake.h"

static DEFINE_MUTEX(key_lock);	/* of the key, and of `hmac`, which takes it for each use */
static u8 key[TLR_KEY_BYTES];
static bool has_key;
static struct crypto_shash *hmac;

static void address_of(const struct sockaddr_storage *from, u8 *into)
{
	const struct sockaddr_in *four = (const void *)from;
	const struct sockaddr_in6 *six = (const void *)from;
	struct in6_addr address = six->sin6_addr;

	if (from->ss_family == AF_INET)
		ipv6_addr_set_v4mapped(four->sin_addr.s_addr, &address);
	memcpy(into, &address, sizeof(address));
}

void tlr_handshake_begin(struct tlr_connection *connection, const struct tlr_hello *hello)
{
	struct tlr_transcript *transcript = &connection->messages->transcript;
	const struct rdma_addr *route = &connection->id->route.addr;

	memcpy(transcript->observer_nonce, hello->nonce, sizeof(hello->nonce));
	get_random_bytes(transcript->target_nonce, sizeof(transcript->target_nonce));
	address_of(&route->dst_addr, transcript->observer_address);
	address_of(&route->src_addr, transcript->target_address);
}

/* The code of the transcript with that label, and of `more` bytes of the table behind it. */
static int code_of(struct tlr_messages *messages, const char *label, size_t more, u8 *code)
{
	int error;

	memcpy(messages->transcript.label, label, sizeof(messages->transcript.label));
	mutex_lock(&key_lock);
	error = has_key ? crypto_shash_setkey(hmac, key, sizeof(key)) : -ENOKEY;
	if (!error)
		error = crypto_shash_tfm_digest(hmac, (const u8 *)&messages->transcript,
						sizeof(messages->transcript) + more, code);
	mutex_unlock(&key_lock);
	return error;
}

int tlr_handshake_check(const struct tlr_connection *connection)
{
	struct tlr_answer answer = connection->messages->answer;	/* the device may write */
	u8 code[TLR_CODE_BYTES];
	int error = code_of(connection->messages, TLR_LABEL_OBSERVER, 0, code);

	if (!error && crypto_memneq(answer.code, code, sizeof(code)))
		error = -EACCES;
	memzero_explicit(code, sizeof(code));
	return error;
}

int tlr_handshake_sign(struct tlr_connection *connection)
{
	struct tlr_table *table = &connection->messages->table;
	u8 code[TLR_CODE_BYTES];
	int error;

	BUILD_BUG_ON(offsetof(struct tlr_messages, table) !=
		     offsetofend(struct tlr_messages, transcript));
	memset(table->code, 0, sizeof(table->code));
	error = code_of(connection->messages, TLR_LABEL_TARGET,
			struct_size(table, region, table->regions), code);
	memcpy(table->code, code, sizeof(code));
	return error;
}

bool tlr_handshake_has_key(void)
{
	return READ_ONCE(has_key);
}

int tlr_handshake_set_key(const char *text)
{
	size_t digits = strcspn(text, " \n");
	u8 bytes[TLR_KEY_BYTES];
	int error = 0;

	if (digits != 2 * sizeof(bytes) || text[digits + strspn(text + digits, " \n")] ||
	    hex2bin(bytes, text, sizeof(bytes))) {
		pr_err("a key is %zu hexadecimal digits and a line end\n", 2 * sizeof(bytes));
		error = -EINVAL;
	} else {
		mutex_lock(&key_lock);
		memcpy(key, bytes, sizeof(key));
		WRITE_ONCE(has_key, true);
		mutex_unlock(&key_lock);
	}
	memzero_explicit(bytes, sizeof(bytes));
	return error;
}

int tlr_handshake_init(void)
{
	hmac = crypto_alloc_shash("hmac(sha256)", 0, 0);
	return PTR_ERR_OR_ZERO(hmac);
}

void tlr_handshake_exit(void)
{
	crypto_free_shash(hmac);
	memzero_explicit(key, sizeof(key));
}
