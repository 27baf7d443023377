//go:build !controlplane

package inuse

import (
	"os"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/goroutines"
)

func TestMain(m *testing.M) { os.Exit(goroutines.Run(m)) }
