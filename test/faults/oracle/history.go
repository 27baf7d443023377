package oracle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
)

// history describes all that happened to a PV, its volume, claim and attachments, in order.
func (j *judge) history(pv Object) []string {
	var lines []Note
	for _, r := range j.Requests {
		if j.concerns(r, pv) {
			lines = append(lines, Note{r.To, j.describe(r)})
		}
	}
	for _, c := range j.calls {
		if c.Volume == pv.Handle || j.made[c.Volume] == pv.Name {
			lines = append(lines, describeCall(c, c.Volume, "deleted")...)
		}
	}
	for _, c := range j.creations {
		if c.Name == pv.Name {
			lines = append(lines, describeCall(c, c.Name, "made: "+c.Volume)...)
		}
	}
	lines = append(lines, j.Notes...)
	slices.SortStableFunc(lines, func(a, b Note) int { return a.At.Compare(b.At) })
	texts := make([]string, len(lines))
	for i, line := range lines {
		texts[i] = clock(line.At) + " " + line.Text
	}
	if cut := len(texts) - 2*longest; cut > 0 {
		texts = slices.Replace(texts, longest, longest+cut, fmt.Sprintf("… %d lines more …", cut))
	}
	return texts
}

// logged reports whether a shard has, or had, the volume's entry.
func (j *judge) logged(shard Object, volume string) bool {
	return slices.ContainsFunc(j.lives[shard.UID], func(m moment) bool { return m.logs(volume) })
}

// longest is how many lines a history shows of its beginning, and of its end: a storm has thousands.
const longest = 150

func (j *judge) concerns(r Request, pv Object) bool {
	switch strings.TrimSuffix(r.Resource, "/status") {
	case "persistentvolumes":
		return r.Name == pv.Name && r.Verb != "watch" && r.Verb != "list"
	case "persistentvolumeclaims":
		return r.Name == pv.ClaimName || r.Name == pv.Name
	case "leases":
		return r.Object != nil && j.logged(*r.Object, pv.Name)
	case "volumeattachments":
		return r.Object != nil && r.Object.Volume == pv.Name
	}
	return false
}

func (j *judge) describe(r Request) string {
	who := r.User
	if who == j.User {
		who = "sidecar"
	}
	text := fmt.Sprintf("%s: %s %s %s: %d", who, r.Verb, r.Resource, r.Name, r.Code)
	if r.Object != nil {
		text += ": " + r.Object.String()
	}
	return text
}

// describeCall describes a call for a volume, and its effect.
func describeCall(c ledger.Call, volume, did string) []Note {
	call := "driver: " + c.Method + "(" + volume + ")"
	lines := []Note{{c.Received, call + " received"}}
	if !c.Done.IsZero() {
		lines = append(lines, Note{c.Done, "driver: volume " + volume + " is " + did})
	}
	switch {
	case !c.Answered.IsZero():
		lines = append(lines, Note{c.Answered, fmt.Sprintf("%s answered %s %s", call, c.Code, strings.Join(c.Faults, ","))})
	case c.Lost:
		lines = append(lines, Note{c.Received.Add(time.Nanosecond), "driver: ended before it answered"})
	}
	return lines
}

// History describes all that happened to a PV, its volume, claim and attachments, in order. Of pv the name and handle
// are needed.
func History(c Case, pv Object) []string {
	return newJudge(c).history(pv)
}
