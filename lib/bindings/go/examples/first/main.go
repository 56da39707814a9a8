// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//
// A first program, which makes three system calls by one crossing into the kernel.

package main

import (
	"errors"
	"fmt"
	"io/fs"
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
	parent := batch.Add(syscall.SYS_GETPPID)
	status := batch.Add(syscall.SYS_LSTAT, batch.Path("/"), trapless.Address(batch, &root))
	opened := batch.Add(syscall.SYS_OPENAT, trapless.AT_FDCWD, batch.Path("absent"), syscall.O_RDONLY)
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
	if err := results[status].Err(); err != nil {
		log.Fatal("lstat /: ", err)
	}
	fmt.Println("lstat /: inode", root.Ino)
	if err := results[opened].Err(); errors.Is(err, fs.ErrNotExist) {
		fmt.Println("open absent:", err)
	}
}
