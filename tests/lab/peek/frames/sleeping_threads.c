// SPDX-License-Identifier: GPL-2.0-only
/*
 * Starts COUNT threads, of which all but a few sleep for ever, and prints a line when they are
 * there. Of `vfork` it makes one child, which sleeps and keeps its parent from going on.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STACK_BYTES 16384
#define AWAKE 20
#define PAUSE_US 5000

static void *rest(void *argument)
{
	for (;;)
		if (argument)
			usleep(PAUSE_US);
		else
			pause();
	return NULL;
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 1;
	pthread_attr_t attributes;

	if (argc > 1 && !strcmp(argv[1], "vfork")) {
		if (!vfork())
			for (;;)
				pause();
		return 0;
	}
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	for (int made = 0; made < count; made++) {
		pthread_t thread;

		if (pthread_create(&thread, &attributes, rest, made < AWAKE ? argv : NULL)) {
			printf("%d of %d threads\n", made, count);
			return 1;
		}
	}
	puts("made");
	fflush(stdout);
	pause();
}
