//go:build linux

// Command supported prints in one line the requirements of test nodes that this machine lacks, and exits with status 1
// if it lacks any.
package main

import (
	"fmt"
	"os"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes"
)

func main() {
	if err := nodes.Supported(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
