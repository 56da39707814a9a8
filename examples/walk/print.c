// SPDX-License-Identifier: MIT
/*
 * Follows the visit in the order of a depth-first walk, adds sizes up and prints them.
 *
 * Directories are visited in the order that fills batches best. This file takes their records in
 * the order of du and find, as far as the records exist, so that lines, messages, and the directory
 * in which a file with several names is counted are those of du and find. It owns the output, the
 * path, and a directory after its visit: it frees what it has printed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "walk.h"

#define OUT_BYTES (64u * 1024)
#define BLOCK_BYTES 1024u	/* du's unit */

/* ---- Output ---------------------------------------------------------------------------------- */

static void out_flush(struct walk *walk)
{
	size_t done = 0;

	while (done < walk->out_used) {
		ssize_t n = write(STDOUT_FILENO, walk->out + done, walk->out_used - done);

		if (n < 0 && errno != EINTR)
			die("write error", errno);
		if (n > 0)
			done += (size_t)n;
	}
	walk->out_used = 0;
}

static void out(struct walk *walk, const char *text, size_t length)
{
	while (length > OUT_BYTES - walk->out_used) {
		size_t part = OUT_BYTES - walk->out_used;

		memcpy(walk->out + walk->out_used, text, part);
		walk->out_used += part;
		text += part;
		length -= part;
		out_flush(walk);
	}
	memcpy(walk->out + walk->out_used, text, length);
	walk->out_used += length;
}

static void out_blocks(struct walk *walk, uint64_t bytes)
{
	uint64_t blocks = (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
	char digits[24], *digit = digits + sizeof(digits);

	*--digit = '\t';
	do
		*--digit = (char)('0' + blocks % 10);
	while (blocks /= 10);
	out(walk, digit, (size_t)(digits + sizeof(digits) - digit));
}

/* ---- The path -------------------------------------------------------------------------------- */

/* Go down to `name`; returns the length to go back up to. */
static size_t path_down(struct walk *walk, const char *name)
{
	size_t before = walk->path_length, length = strlen(name);

	if (before + length + 2 > walk->path_room) {
		walk->path_room = 2 * (before + length + 2);
		walk->path = must(realloc(walk->path, walk->path_room));
	}
	if (before && walk->path[before - 1] != '/')
		walk->path[walk->path_length++] = '/';
	memcpy(walk->path + walk->path_length, name, length);
	walk->path_length += length;
	return before;
}

/* A path as shells read it, so that no name can play tricks on a terminal. */
static void quote(const char *path, size_t length)
{
	putc('\'', stderr);
	for (size_t i = 0; i < length; i++) {
		unsigned char c = (unsigned char)path[i];

		if (c == '\'')
			fputs("'\\''", stderr);
		else if (c < ' ' || c >= 0x7f)
			fprintf(stderr, "'$'\\%03o''", c);
		else
			putc(c, stderr);
	}
	putc('\'', stderr);
}

/* "walk: WHAT'PATH'MORE'PATH'END": one complaint, after all lines that come before it. */
static void complain(struct walk *walk, const char *what, const char *more, size_t other,
		     const char *final)
{
	out_flush(walk);
	walk->status = EXIT_FAILURE;
	fprintf(stderr, "walk: %s", what);
	quote(walk->path, walk->path_length);
	if (more) {
		fputs(more, stderr);
		quote(walk->path, other);
	}
	fprintf(stderr, "%s\n", final);
}

static void complain_error(struct walk *walk, const char *what, int error)
{
	char final[128];

	snprintf(final, sizeof(final), ": %s", strerror(error));
	complain(walk, walk->options.find ? "" : what, NULL, 0, final);
}

/* One line: the path, and in du's manner the size before it. */
static void line(struct walk *walk, uint64_t bytes)
{
	if (!walk->options.find)
		out_blocks(walk, bytes);
	out(walk, walk->path, walk->path_length);
	out(walk, "\n", 1);
}

/* ---- Files with several names --------------------------------------------------------------- */

static struct link *seen_slot(const struct seen *seen, const struct link *link)
{
	uint64_t hash = (link->ino ^ link->dev << 32) * 0x9E3779B97F4A7C15u;
	size_t i = (size_t)(hash >> 32) & seen->mask;

	while (seen->slots[i].ino && (seen->slots[i].ino != link->ino ||
				      seen->slots[i].dev != link->dev))
		i = (i + 1) & seen->mask;
	return &seen->slots[i];
}

static void seen_grow(struct seen *seen)
{
	struct seen larger = { .used = seen->used };

	larger.mask = seen->slots ? 2 * seen->mask + 1 : 1023;
	larger.slots = must(calloc(larger.mask + 1, sizeof(*larger.slots)));
	for (size_t i = 0; seen->slots && i <= seen->mask; i++)
		if (seen->slots[i].ino)
			*seen_slot(&larger, &seen->slots[i]) = seen->slots[i];
	free(seen->slots);
	*seen = larger;
}

/* True the first time that a file is met. */
static bool seen_first(struct seen *seen, const struct link *link)
{
	struct link *slot;

	if (!seen->slots || seen->used > seen->mask / 2)
		seen_grow(seen);
	slot = seen_slot(seen, link);
	if (slot->ino)
		return false;
	*slot = *link;
	seen->used++;
	return true;
}

/* ---- The walk -------------------------------------------------------------------------------- */

/* The next record of the directory that is there, or NULL. */
static struct record *next(struct dir *dir)
{
	if (!dir->at)
		dir->at = dir->records;
	while (dir->at) {
		struct block *block = dir->at;
		char *here = block->data + dir->offset;

		if (dir->offset < block->used && block->is_index) {
			dir->offset += sizeof(struct record *);
			return *(struct record **)here;
		}
		if (dir->offset < block->used) {
			dir->offset += ((struct record *)here)->length;
			return (struct record *)here;
		}
		if (!block->next)
			return NULL;
		dir->at = block->next;
		dir->offset = 0;
	}
	return NULL;
}

static void enter(struct walk *walk, struct dir *dir)
{
	dir->path_length = walk->path_length;
	walk->dir = dir;
	if (walk->options.find)
		line(walk, 0);
}

/* Everything in the directory is printed. */
static void leave(struct walk *walk)
{
	struct dir *dir = walk->dir, *parent = dir->parent;

	walk->path_length = dir->path_length;
	if (dir->error && dir->partial && !walk->options.find)
		complain_error(walk, "", dir->error);
	else if (dir->error)
		complain_error(walk, "cannot read directory ", dir->error);
	if (!walk->options.find && (!walk->options.summary || !parent))
		line(walk, dir->bytes);
	walk->dir = parent;
	if (parent) {
		parent->bytes += dir->bytes;
		walk->path_length = parent->path_length;
	}
	for (struct block *block = dir->records, *following; block; block = following) {
		following = block->next;
		free(block);
	}
	free(dir);
}

static void print_link(struct walk *walk, struct link *link)
{
	if (seen_first(&walk->seen, link)) {
		walk->dir->bytes += link->bytes;
		if (walk->options.all)
			line(walk, link->bytes);
	}
	free(link);
}

static void print_record(struct walk *walk, struct record *record)
{
	size_t before = path_down(walk, record->name);

	switch (record->kind) {
	case KIND_DIR:
		enter(walk, record->dir);
		return;
	case KIND_FILE:
		line(walk, record->bytes);
		break;
	case KIND_LINK:
		print_link(walk, record->link);
		break;
	case KIND_LOOP:
		complain(walk, "File system loop detected; ",
			 " is part of the same file system loop as ",
			 record->dir->path_length, ".");
		break;
	case KIND_ERROR:
		complain_error(walk, "cannot access ", record->error);
		if (walk->options.find)	/* its name is known all the same */
			line(walk, 0);
		break;
	}
	walk->path_length = before;
}

/* Go on with the depth-first walk as far as the visit has come. */
void print_more(struct walk *walk)
{
	while (walk->dir) {
		struct record *record = next(walk->dir);

		if (record)
			print_record(walk, record);
		else if (walk->dir->ended)
			leave(walk);
		else
			break;
	}
	if (walk->out_at_once)
		out_flush(walk);
}

void print_init(struct walk *walk)
{
	walk->out = must(malloc(OUT_BYTES));
	walk->out_at_once = isatty(STDOUT_FILENO);
	path_down(walk, walk->options.tree);
}

void print_tree(struct walk *walk, struct dir *root)
{
	enter(walk, root);
}

/* The tree is a file. */
void print_file(struct walk *walk, const struct stat *stat)
{
	line(walk, (uint64_t)stat->st_blocks * 512);
}

/* The tree is not there. */
void print_error(struct walk *walk, int error)
{
	complain_error(walk, "cannot access ", error);
}

void print_end(struct walk *walk)
{
	out_flush(walk);
	free(walk->out);
	free(walk->path);
	free(walk->seen.slots);
}
