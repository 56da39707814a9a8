/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The options of a run, and the functions that its two kinds share, a command that ends
 * (mode_command.c) and a server under load (mode_server.c): starting processes, comparing output,
 * printing rows.
 */
#ifndef EVAL_MODES_RUN_H
#define EVAL_MODES_RUN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "mode_device.h"
#include "measure.h"

struct job {
	const char *call;		/* label of the rows, and part of names of files */
	enum measure_kind kind;
	unsigned int repeats;
	unsigned int limit_s;		/* for all of it */
	int status;			/* that the command must end with */
	const char *input;		/* standard input comes from there */
	unsigned int port;		/* of a server; 0: a command */
	const char *load;		/* for the shell: what makes a server work */
	bool switchable;		/* the module offers supervisor mode */
	char **argv;
};

enum output { EXPECTED, GOT, OF_SERVER, OUTPUTS };

void command_run(const struct job *job);
void server_run(const struct job *job);

/* Name of a file that holds output. */
const char *run_output(const struct job *job, enum output which);

/*
 * Starts argv in `mode`, with everything it forks and executes; its output and errors go to a
 * file of the job's. It ends with the run.
 */
pid_t run_start(const struct job *job, char *const *argv, enum tl_mode mode, enum output output);

/* Ends the run if the program, in `mode`, did not exit with the expected status. */
void run_check_status(const struct job *job, const char *mode, const char *what, int wait_status);

/* Bytes of expected output; ends the run if the output in `mode` differs from them. */
uint64_t run_compare(const struct job *job, const char *mode);

void run_print_cost(const struct job *job, enum tl_mode mode, uint64_t cost_ns, uint64_t ops,
		    unsigned int repeat);
void run_print_calls(const struct job *job, const struct calls *calls, unsigned int repeat);

#endif /* EVAL_MODES_RUN_H */
