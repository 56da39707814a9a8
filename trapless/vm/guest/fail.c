// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reports a failure to the launcher and ends the run: through the channel once that is open, and
 * before that as the last line of the kernel's log.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/reboot.h>
#include <unistd.h>

#include "channel.h"
#include "fail.h"

static unsigned int stays_s;

void guest_fail_stays(unsigned int seconds)
{
	stays_s = seconds;
}

void guest_fail(const char *format, ...)
{
	struct channel *channel = channel_header();
	char text[CHANNEL_ERROR_BYTES] = "";
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (channel) {
		memcpy(channel->error, text, sizeof(text));
		channel_set_phase(PHASE_FAILED);
	} else {
		fprintf(stderr, "trapless-init: %s\n", text);
		sleep(stays_s);
		reboot(RB_AUTOBOOT);
	}
	for (;;)
		pause(); /* until the launcher has read it and ends the VM */
}
