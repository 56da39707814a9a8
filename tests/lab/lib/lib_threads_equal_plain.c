// SPDX-License-Identifier: GPL-2.0-only
/*
 * The same fine-grained threads (open, read, close of many files, some of them absent) end with the
 * same results by plain calls and by the module, which makes them in a tenth of the crossings.
 */
#include "check.h"

#include <trapless.h>

#define FILES 300

struct file {
	char path[32];
	char text[16];
	int64_t opened, length, closed;
};

static void file_close(struct tl_thread *self, void *arg)
{
	struct file *file = arg;

	CHECK_EQ(TL_CALL(tl_thread_sched(self), NULL, &file->closed, SYS_close, file->opened), 0);
}

static void file_read(struct tl_thread *self, void *arg)
{
	struct file *file = arg;
	struct tl_thread *next;

	CHECK_EQ(tl_thread_create(tl_thread_sched(self), &next, file_close, file, 1), 0);
	CHECK_EQ(TL_CALL(tl_thread_sched(self), next, &file->length, SYS_read, file->opened,
			 file->text, sizeof(file->text)), 0);
}

static void file_open(struct tl_thread *self, void *arg)
{
	struct file *file = arg;
	struct tl_thread *next;

	CHECK_EQ(tl_thread_create(tl_thread_sched(self), &next, file_read, file, 1), 0);
	CHECK_EQ(TL_CALL(tl_thread_sched(self), next, &file->opened, SYS_open, file->path,
			 O_RDONLY), 0);
}

static struct tl_sched_stats run(uint32_t flags, struct file *files)
{
	struct tl_sched_config config = { .size = sizeof(config), .flags = flags };
	struct tl_sched_stats stats = { .size = sizeof(stats) };
	struct tl_sched *sched;

	CHECK_EQ(tl_sched_create(&sched, &config), 0);
	for (int i = 0; i < FILES; i++) {
		/* Every seventh was never made. */
		snprintf(files[i].path, sizeof(files[i].path), "/tmp/file%d", i);
		CHECK_EQ(tl_thread_create(sched, NULL, file_open, &files[i], 0), 0);
	}
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(tl_sched_get_stats(sched, &stats), 0);
	tl_sched_destroy(sched);
	return stats;
}

int main(void)
{
	static struct file plain[FILES], module[FILES];
	struct tl_sched_stats plain_stats, module_stats;
	char path[32];

	for (int i = 0; i < FILES; i++) {
		snprintf(path, sizeof(path), "/tmp/file%d", i);
		if (i % 7) {
			int fd = MUST(open(path, O_CREAT | O_WRONLY, 0600));

			MUST(dprintf(fd, "contents %d", i));
			MUST(close(fd));
		}
	}
	plain_stats = run(TL_PLAIN, plain);
	module_stats = run(TL_MODULE, module);
	for (int i = 0; i < FILES; i++) {
		if (i % 7)
			CHECK(!strncmp(module[i].text, "contents ", 9));
		else
			CHECK_EQ(module[i].opened, -ENOENT);
		CHECK_EQ(memcmp(plain[i].text, module[i].text, sizeof(plain[i].text)), 0);
		CHECK_EQ(plain[i].opened < 0, module[i].opened < 0);
		CHECK_EQ(plain[i].length, module[i].length);
		CHECK_EQ(plain[i].closed, module[i].closed);
	}
	CHECK_EQ(module_stats.calls, 3 * FILES);
	CHECK_EQ(plain_stats.calls, 3 * FILES);
	CHECK_EQ(plain_stats.crossings, 3 * FILES);
	CHECK_WITHIN(module_stats.crossings, 1, 3 * FILES / 10);
	return 0;
}
