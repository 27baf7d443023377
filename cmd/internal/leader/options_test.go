package leader

import (
	"maps"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestLeaseLabelsFlag(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"team:storage":                    {"team": "storage"},
		"team:storage,example.com/tier:1": {"team": "storage", "example.com/tier": "1"},
		"empty:":                          {"empty": ""},
		"team":                            nil,
		"a:b:c":                           nil,
		"no key:value":                    nil,
		"key:no value":                    nil,
		"":                                nil,
		"team:storage,":                   nil,
		"team:storage --leader-election-labels=a:": nil,
	} {
		var o Options
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.Flags(fs, "a Lease", "")
		err := fs.Parse([]string{"--leader-election-labels=" + text})
		if (err == nil) != (want != nil) || err == nil && !maps.Equal(o.Settings.Labels, want) {
			t.Errorf("%q: %v, %v", text, o.Settings.Labels, err)
		}
	}
}

// A request that hangs leaves time for another one before the renew deadline.
func TestElectorRequestsHaveTimeout(t *testing.T) {
	for deadline, want := range map[time.Duration]time.Duration{10 * time.Second: 5 * time.Second,
		time.Second: time.Second} {
		o := &Options{}
		o.Settings.RenewDeadline = deadline
		e := must.Get(o.Elector(&rest.Config{Host: "http://127.0.0.1:1"}, "disk", leadership.NewClock()))(t)
		client, ok := e.client.CoordinationV1().RESTClient().(*rest.RESTClient)
		if !ok || client.Client.Timeout != want {
			t.Errorf("with a renew deadline of %v: %T, want %v", deadline, e.client.CoordinationV1().RESTClient(), want)
		}
	}
}
