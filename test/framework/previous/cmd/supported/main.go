//go:build unix

// Command supported prints the release before this checkout, or in one line why it is not to be had, and exits with
// status 1 then.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/previous"
)

func main() {
	r, err := previous.Find(context.Background())
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(r)
}
