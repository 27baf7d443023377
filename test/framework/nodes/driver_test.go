//go:build linux

package nodes

import (
	"strings"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
)

func TestDeletedInUse(t *testing.T) {
	for sentence, c := range map[string]struct {
		// calls are METHOD NODE PATH, a second each, in which they do their work at once. With a dash before, a call changes
		// nothing. The driver works on a call with a plus before it when the next call comes in.
		calls string
		want  []string
	}{
		"nothing used it":     {"Delete", nil},
		"all uses have ended": {"NodeStage a s,NodePublish a p,NodeUnpublish a p,NodeUnstage a s,Delete", nil},
		"it is published":     {"NodePublish a p,Delete", []string{"NodePublishVolume p on node a"}},
		"it is published on another node": {"NodePublish a p,NodePublish b q,NodeUnpublish a p,Delete",
			[]string{"NodePublishVolume q on node b"}},
		"it is published at another path": {"NodePublish a p,NodePublish a q,NodeUnpublish a p,Delete",
			[]string{"NodePublishVolume q on node a"}},
		"it is staged": {"NodeStage a s,NodePublish a p,NodeUnpublish a p,Delete",
			[]string{"NodeStageVolume s on node a"}},
		"it is attached":                     {"ControllerPublish a ,Delete", []string{"ControllerPublishVolume on node a"}},
		"twice":                              {"NodePublish a p,Delete,Delete", []string{"Publish", "Publish"}},
		"an unpublish that did nothing":      {"NodePublish a p,-NodeUnpublish a p,Delete", []string{"Publish"}},
		"an unpublish that had not ended":    {"NodePublish a p,+NodeUnpublish a p,Delete", []string{"Publish"}},
		"a publish that did nothing":         {"-NodePublish a p,Delete", nil},
		"it is published after DeleteVolume": {"Delete,NodePublish a p", nil},
		"published again": {"NodePublish a p,NodeUnpublish a p,NodePublish a p,Delete",
			[]string{"Publish"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			var calls []ledger.Call
			for i, text := range strings.Split(c.calls, ",") {
				fields := append(strings.Fields(strings.TrimLeft(text, "+-")), "", "")
				at := time.Unix(int64(i), 0)
				call := ledger.Call{Method: strings.TrimSuffix(fields[0], "Volume") + "Volume", Node: fields[1], Path: fields[2],
					Volume: "v", Received: at, Done: at}
				switch text[0] {
				case '-':
					call.Done = time.Time{}
				case '+':
					call.Done = at.Add(1500 * time.Millisecond)
				}
				calls = append(calls, call)
			}
			got := deletedInUse(calls)
			if len(got) != len(c.want) {
				t.Fatalf("%q, want %q", got, c.want)
			}
			for i := range got {
				if !strings.Contains(got[i].String(), c.want[i]) {
					t.Errorf("%q, want %q", got[i], c.want[i])
				}
			}
			calls = append(calls, ledger.Call{Method: "DeleteVolume", Volume: "another", Received: time.Unix(99, 0)})
			if more := deletedInUse(calls); len(more) != len(got) {
				t.Errorf("another volume: %q", more)
			}
		})
	}
}
