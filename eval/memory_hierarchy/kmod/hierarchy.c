// SPDX-License-Identifier: GPL-2.0-only
/*
 * A kernel module that offers the paper's evaluation function inside the kernel, over an array in
 * pages of 4 KB, by lseek(2) on /dev/hierarchy: the shortest way from user space to a driver's
 * function that a stock kernel has, open to a plain call and to a wrapped one alike. Each
 * descriptor has its own place in the array, where its footprint begins. For experiment
 * memory-hierarchy alone.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pgtable.h>
#include <linux/vmalloc.h>
#include <asm/processor.h>

#include "evaluation.h"

static unsigned long bytes = 256ul << 10;
module_param(bytes, ulong, 0444);
MODULE_PARM_DESC(bytes, "size of the array, a multiple of a page");

static unsigned char *array;

static int evaluation_open(struct inode *inode, struct file *file)
{
	file->private_data = array;
	return 0;
}

static loff_t evaluation_llseek(struct file *file, loff_t argument, int whence)
{
	const unsigned char *begin = file->private_data;
	unsigned long width, stride_log2;

	if (argument < 0 || argument >> 31)
		return -EINVAL;
	if (whence == EVALUATION_PLACE) {
		if (argument > bytes)
			return -EINVAL;
		file->private_data = array + argument;
		return 0;
	}
	width = EVALUATION_WIDTH(argument);
	stride_log2 = EVALUATION_STRIDE_LOG2(argument);
	if (whence || width > array + bytes - begin || stride_log2 > EVALUATION_STRIDE_MAX_LOG2)
		return -EINVAL;
	return evaluate(begin, width, 1ul << stride_log2);
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.open = evaluation_open,
	.llseek = evaluation_llseek,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = EVALUATION_DEVICE,
	.fops = &operations,
	.mode = 0666,
};

/* The page table that the processor itself uses, down to the entry of a 4 KB page. */
static bool is_in_small_page(const unsigned char *byte)
{
	unsigned long address = (unsigned long)byte;
	pgd_t *pgd = (pgd_t *)__va(read_cr3_pa()) + pgd_index(address);
	p4d_t *p4d = p4d_offset(pgd, address);
	pud_t *pud = pud_offset(p4d, address);
	pmd_t *pmd;

	if (pud_none(*pud) || pud_leaf(*pud))
		return false;
	pmd = pmd_offset(pud, address);
	return !pmd_none(*pmd) && !pmd_leaf(*pmd);
}

static int __init hierarchy_init(void)
{
	unsigned long at;
	int error;

	if (!bytes || !PAGE_ALIGNED(bytes) || bytes > EVALUATION_WIDTH_MAX) {
		pr_err("bytes=%lu: the array has 1 to %lu pages of %lu bytes\n", bytes,
		       EVALUATION_WIDTH_MAX >> PAGE_SHIFT, PAGE_SIZE);
		return -EINVAL;
	}
	array = vmalloc(bytes);
	if (!array)
		return -ENOMEM;
	for (at = 0; at < bytes; at++)
		array[at] = evaluation_byte(at);
	for (at = 0; at < bytes; at += PAGE_SIZE) {
		if (is_in_small_page(array + at))
			continue;
		pr_err("the array is not in pages of %lu bytes\n", PAGE_SIZE);
		error = -EOPNOTSUPP;
		goto err_free;
	}
	error = misc_register(&device);
	if (error)
		goto err_free;
	return 0;

err_free:
	vfree(array);
	return error;
}

static void __exit hierarchy_exit(void)
{
	misc_deregister(&device);
	vfree(array);
}

module_init(hierarchy_init);
module_exit(hierarchy_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("the evaluation function of experiment memory-hierarchy, in the kernel");
