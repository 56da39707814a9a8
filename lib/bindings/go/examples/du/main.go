// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//
// Prints how many bytes the files of a tree have.
//
//	du TREE

package main

import (
	"fmt"
	"os"

	trapless "trapless.example/go"
)

func count(tree string) (bytes int64, err error) {
	walk, err := trapless.NewWalk(tree)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", tree, err)
	}
	defer walk.Close()
	err = walk.Each(func(entry *trapless.Entry) error {
		if entry.Err != nil {
			fmt.Fprintf(os.Stderr, "du: %s: %v\n", entry.Path, entry.Err)
		} else if entry.Mode.IsRegular() {
			bytes += entry.Size
		}
		return nil
	})
	return bytes, err
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
