package chunks

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// TestCompressedBytesAreFixed checks that a writer that was used before yields the same bytes. Otherwise the entry
// would be written again, and would not be settled.
func TestCompressedBytesAreFixed(t *testing.T) {
	t.Parallel()
	for i := range 20 {
		noise := make([]byte, 600) // it cannot be compressed, while its repeated begin can
		_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(noise)
		data := append(bytes.Repeat(noise[:100], 1+i*7), noise...)
		var fresh bytes.Buffer
		w := must.Get(flate.NewWriter(&fresh, flate.BestCompression))(t)
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
		must.OK(t, w.Close())
		if got := Compress(data); got != compressed+base64.RawStdEncoding.EncodeToString(fresh.Bytes()) {
			t.Errorf("%d bytes are compressed in another way", len(data))
		}
	}
}

func TestRunsOutsideTheListAreRefused(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]run{
		"beyond the list": {From: 1190, Count: 11}, "before it": {From: -1, Count: 1}, "backwards": {Count: -1},
		"an overflow": {From: 1 << 62, Count: 1 << 62},
	} {
		s := &Requirement{Preferred: []run{one}}
		if _, err := New("").Load(s, nil, map[string]string{}); err == nil {
			t.Errorf("%s: it is read", name)
		}
	}
}

// FuzzColumns checks that no JSON panics, and that decoded topologies survive another round trip.
func FuzzColumns(f *testing.F) {
	f.Add(`{"count":2,"columns":{"zone":["a",null],"node":["1","2"]}}`)
	f.Add(`{"count":-1,"columns":{"zone":[]}}`)
	f.Fuzz(func(t *testing.T, value string) {
		var stored columns
		if json.Unmarshal([]byte(value), &stored) != nil {
			return
		}
		once, err := stored.topologies()
		if err != nil {
			return
		}
		again, err := columnsOf(once).topologies()
		if err != nil || !Same(&csi.TopologyRequirement{Requisite: once},
			&csi.TopologyRequirement{Requisite: again}) {
			t.Errorf("%v becomes %v, %v", once, again, err)
		}
	})
}
