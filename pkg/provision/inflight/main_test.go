package inflight

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/goroutines"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // random faults fill pages
	os.Exit(goroutines.Run(m))
}
