/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The subjects of one process: what is timed, and how many calls a sample makes. This header owns
 * the list. main.c owns when each is run, subjects.c what each does.
 */
#ifndef ESTIMATE_SUBJECTS_H
#define ESTIMATE_SUBJECTS_H

#define SUBJECTS_MAX 160
#define SUBJECT_NAME_MAX 40
#define SUBJECT_BATCH_MAX 128u	/* the largest N */

struct subject {
	char name[SUBJECT_NAME_MAX];
	void (*run)(const struct subject *subject, unsigned int calls);
	unsigned int n;		/* calls a crossing; 1 where that has no meaning */
	unsigned int calls;	/* calls that one sample makes: a multiple of n */
	unsigned int what;	/* the subject's own: which loop, which call */
};

struct subjects_config {
	const char *folder;	/* a file for reads is made here, and has no name */
	const char *directory;	/* files are made here and stay; NULL: no subject of listing.h */
	const char *loop;	/* the loop that batches are timed with */
	int module;		/* also batches by the module itself */
};

/*
 * Both fill `list` and return how many there are, and end the program, with a message, on an error.
 * The second one has io_uring's subjects, none where there is no io_uring; the first comes before.
 */
unsigned int subjects_open(struct subject *list, const struct subjects_config *config);
unsigned int subjects_open_uring(struct subject *list);

#endif /* ESTIMATE_SUBJECTS_H */
