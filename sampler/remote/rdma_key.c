// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reads the common key and makes codes with it, which trapless_rdma.h describes. HMAC is OpenSSL's,
 * which is loaded when a source is opened, as the libraries for RDMA are.
 */
#include "rdma_key.h"

#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "source.h"

static const char *const names[] = { "libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.so" };

static int load(struct key *key, char *error)
{
	const void *(*sha256)(void) = NULL;
	void *library = NULL;
	size_t i;

	for (i = 0; !library && i < sizeof(names) / sizeof(names[0]); i++)
		library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	if (library) {
		key->hmac = (hmac_function *)dlsym(library, "HMAC");
		sha256 = (const void *(*)(void))dlsym(library, "EVP_sha256");
	}
	if (!key->hmac || !sha256)
		return source_fail(error, -ENOENT, "OpenSSL's libcrypto is not there, which checks "
				   "the key; on Debian: apt-get install libssl3");
	key->sha256 = sha256();
	return 0;
}

static int digit(char letter)
{
	if (letter >= '0' && letter <= '9')
		return letter - '0';
	if (letter >= 'a' && letter <= 'f')
		return letter - 'a' + 10;
	return letter >= 'A' && letter <= 'F' ? letter - 'A' + 10 : -1;
}

int key_load(struct key *key, const char *path, char *error)
{
	char text[2 * TLR_KEY_BYTES + 2] = "";
	FILE *file = fopen(path, "re");
	struct stat status;
	size_t length, i;

	if (!file)
		return source_fail(error, -errno, "%s: %s", path, strerror(errno));
	length = fread(text, 1, sizeof(text), file);
	if (fstat(fileno(file), &status))
		status.st_mode = 0777;
	fclose(file);
	if (status.st_mode & 077)
		return source_fail(error, -EACCES, "%s: others may read it; chmod 600 it", path);
	for (i = 0; i < TLR_KEY_BYTES && length >= 2 * TLR_KEY_BYTES; i++) {
		int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);

		if (high < 0 || low < 0)
			break;
		key->bytes[i] = (uint8_t)(high << 4 | low);
	}
	if (i < TLR_KEY_BYTES || (length > 2 * TLR_KEY_BYTES && text[2 * TLR_KEY_BYTES] != '\n') ||
	    length > 2 * TLR_KEY_BYTES + 1)
		return source_fail(error, -EINVAL, "%s is no key, which is %d hexadecimal digits: "
				   "see `openssl rand -hex %d`", path, 2 * TLR_KEY_BYTES,
				   TLR_KEY_BYTES);
	return load(key, error);
}

void key_code(const struct key *key, const char *label, const struct tlr_transcript *transcript,
	      const void *table, size_t more, uint8_t *code)
{
	struct {
		struct tlr_transcript transcript;
		uint8_t table[TLR_TABLE_BYTES];
	} text = { .transcript = *transcript };
	unsigned int bytes;

	memcpy(text.transcript.label, label, sizeof(text.transcript.label));
	if (more)
		memcpy(text.table, table, more);
	key->hmac(key->sha256, key->bytes, sizeof(key->bytes), (const unsigned char *)&text,
		  sizeof(text.transcript) + more, code, &bytes);
}

void key_address(const void *address, uint8_t *into)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	const struct sockaddr_in *four = address;
	const struct sockaddr_in6 *six = address;

	if (four->sin_family == AF_INET) {
		memcpy(into, mapped, sizeof(mapped));
		memcpy(into + sizeof(mapped), &four->sin_addr, sizeof(four->sin_addr));
	} else {
		memcpy(into, &six->sin6_addr, sizeof(six->sin6_addr));
	}
}
