package provision

import (
	"sync/atomic"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
)

func TestChangedIsCalledForCapacityChanges(t *testing.T) {
	for name, c := range map[string]struct {
		fails errclass.Class
		want  bool
	}{
		"a volume is made":         {errclass.Done, true},
		"there is no room":         {errclass.Exhausted, true},
		"a wrong parameter is not": {errclass.Refused, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if c.fails != errclass.Done {
				w.failing(false, class(c.fails))
			}
			var told, strange atomic.Int32
			p := w.start(Config{Changed: func(class string, at []map[string]string) {
				told.Add(1)
				if class != "fast" || len(at) > 0 {
					strange.Add(1)
				}
			}})
			w.makeClaim()
			w.wait("the driver has answered", func() bool { return w.count("close entry") > 0 })
			p.stop()
			if (told.Load() > 0) != c.want || strange.Load() > 0 {
				t.Errorf("told %d times, %d of them strange", told.Load(), strange.Load())
			}
		})
	}
}
