//go:build linux

// Command supported says in one line what this machine lacks to run test nodes, and exits with status 1 then.
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
