// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//
// A first program, which makes three system calls by one crossing into the kernel.

package main

import (
	"fmt"
	"log"
	"syscall"

	trapless "trapless.example/go"
)

func main() {
	batch, err := trapless.NewBatch(32)
	if err != nil {
		log.Fatal(err)
	}
	defer batch.Close()
	var root syscall.Stat_t
	name, _ := syscall.BytePtrFromString("/")
	parent := batch.Add(syscall.SYS_GETPPID)
	status := batch.Add(syscall.SYS_LSTAT, trapless.Address(batch, name), trapless.Address(batch, &root))
	closed := batch.Add(syscall.SYS_CLOSE, 1<<64-1)
	results, err := batch.Flush()
	if err != nil {
		log.Fatal(err)
	}
	if reason := batch.Reason(); reason != "" {
		fmt.Printf("%d calls, one by one: %s\n", len(results), reason)
	} else {
		fmt.Printf("%d calls, one crossing\n", len(results))
	}
	fmt.Println("getppid:", results[parent])
	fmt.Printf("lstat /: %d, inode %d\n", results[status], root.Ino)
	fmt.Println("close -1:", results[closed])
}
