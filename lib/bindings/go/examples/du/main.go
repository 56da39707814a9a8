// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//
// Prints how many bytes the files of a tree have, and exits with 1 if some could not be read, as du(1).
// With -walkdir the standard library walks, to be compared.
//
//	du [-walkdir] TREE

package main

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	trapless "trapless.example/go"
)

var status = 0

func report(path string, err error) {
	fmt.Fprintf(os.Stderr, "du: %s: %v\n", path, err)
	status = 1
}

func count(tree string) (bytes int64, err error) {
	walk, err := trapless.NewWalk(tree)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", tree, err)
	}
	defer walk.Close()
	err = walk.Each(func(entry *trapless.Entry) error {
		if entry.Err != nil {
			report(entry.Path, entry.Err)
		} else if entry.Mode.IsRegular() {
			bytes += entry.Size
		}
		return nil
	})
	return bytes, err
}

func countByWalkDir(tree string) (bytes int64, err error) {
	err = filepath.WalkDir(tree, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			report(path, err)
		} else if info, err := entry.Info(); err != nil {
			report(path, err)
		} else if info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	return bytes, err
}

func main() {
	counter := count
	byWalkDir := flag.Bool("walkdir", false, "walk by filepath.WalkDir")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: du [-walkdir] TREE")
		os.Exit(2)
	}
	if *byWalkDir {
		counter = countByWalkDir
	}
	bytes, err := counter(flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, "du:", err)
		os.Exit(1)
	}
	fmt.Println(bytes)
	os.Exit(status)
}
