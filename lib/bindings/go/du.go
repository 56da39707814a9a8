// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//
// Prints how many bytes the files of a tree have. 64 files are asked for by one crossing, and by one
// call of cgo.
//
//	du TREE

package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

const files = 64

type question struct {
	path string
	name *byte
	stat syscall.Stat_t
}

type walk struct {
	batch     *Batch
	questions []*question
	bytes     int64
}

func (walk *walk) ask(path string) error {
	name, err := syscall.BytePtrFromString(path)
	if err != nil {
		return err
	}
	one := &question{path: path, name: name}
	walk.questions = append(walk.questions, one)
	walk.batch.Add(syscall.SYS_LSTAT, Address(walk.batch, one.name), Address(walk.batch, &one.stat))
	if walk.batch.Full() {
		return walk.flush()
	}
	return nil
}

func (walk *walk) flush() error {
	results, err := walk.batch.Flush()
	for i, result := range results {
		one := walk.questions[i]
		if result < 0 {
			fmt.Fprintf(os.Stderr, "du: %s: %v\n", one.path, syscall.Errno(-result))
		} else if one.stat.Mode&syscall.S_IFMT == syscall.S_IFREG {
			walk.bytes += one.stat.Size
		}
	}
	walk.questions = walk.questions[:0]
	return err
}

func count(tree string) (int64, error) {
	batch, err := NewBatch(files)
	if err != nil {
		return 0, err
	}
	defer batch.Close()
	walk := &walk{batch: batch}
	err = filepath.WalkDir(tree, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		return walk.ask(path)
	})
	if err == nil {
		err = walk.flush()
	}
	return walk.bytes, err
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: du TREE")
		os.Exit(2)
	}
	bytes, err := count(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "du:", err)
		os.Exit(1)
	}
	fmt.Println(bytes)
}
