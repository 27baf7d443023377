//go:build unix

// Command supported exits with 0 where the tests of the page can run. Else it prints why not.
package main

import (
	"fmt"
	"os"

	"github.com/csi-reclaimer/csi-reclaimer/test/web/browser"
)

func main() {
	if _, err := browser.Path(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
