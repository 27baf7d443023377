//go:build unix

package scenarios

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/demo/cluster/clustertest"
)

func TestJudge(t *testing.T) { clustertest.Judged(t, Act()) }
