/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The paper's evaluation function (Fig. 2) as both sides have it: it reads every stride-th byte of
 * the first width bytes of an array and returns the sum. Also what the arrays hold, so that a sum
 * proves its reads, and how one system call carries width and stride. Owns no array and no call.
 */
#ifndef EVAL_EVALUATION_H
#define EVAL_EVALUATION_H

#ifndef noinline
#define noinline __attribute__((noinline))
#endif

#define EVALUATION_DEVICE "hierarchy"		/* in /dev */
#define EVALUATION_WIDTH_MAX (8ul << 20)	/* bytes; sums stay below 2^31 */
#define EVALUATION_STRIDE_MAX_LOG2 12u		/* one page */

/*
 * The offset of lseek(2) with whence 0 carries the request: 31 bits, so that int $0x80 can carry
 * it. The answer is the sum, or -EINVAL for more than the array has.
 */
#define EVALUATION(width, stride_log2) ((long)((width) | (unsigned long)(stride_log2) << 24))
#define EVALUATION_WIDTH(argument) ((unsigned long)(argument) & ((1ul << 24) - 1))
#define EVALUATION_STRIDE_LOG2(argument) ((unsigned long)(argument) >> 24)

/* With this whence, the offset is the byte of the array at which this descriptor's widths begin. */
#define EVALUATION_PLACE 1

/* Not inlined, so that both sides call the same few instructions; volatile: each read is made. */
static noinline __attribute__((unused)) unsigned long
evaluate(const unsigned char *array, unsigned long width, unsigned long stride)
{
	const volatile unsigned char *bytes = array;
	unsigned long sum = 0, at;

	for (at = 0; at < width; at += stride)
		sum += bytes[at];
	return sum;
}

/* Never 0: a read left out, or made twice, shows in a sum. */
static inline unsigned char evaluation_byte(unsigned long at)
{
	return (unsigned char)(1 + ((unsigned int)((at + 1) * 2654435761u) >> 8) % 255);
}

#endif /* EVAL_EVALUATION_H */
