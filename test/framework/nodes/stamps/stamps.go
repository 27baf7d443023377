// Package stamps shows the writers of a volume, and whether two wrote at the same time.
//
// A writer appends a line to a file of the volume at each write, with one write(2) to a file that it opened with
// O_APPEND. So the order of the lines is the order of the writes, across all writers. If lines of one writer stand
// before and after a line of another, both have written to the volume at the same time. The data shows it,
// independently of any API object.
package stamps

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// FileName is the name of the file in the volume.
const FileName = "stamps.jsonl"

// RefusedFile is the name of a file in the volume. While it exists, the writes of pods on that node hang, as where the
// storage system refuses the node.
func RefusedFile(node string) string { return "refused-" + node }

// Stamp is one line.
type Stamp struct {
	// Pod is the UID of the writer's pod, and Run is unique for each start of its program: a container that is
	// restarted is another writer.
	Pod types.UID `json:"pod"`
	Run string    `json:"run"`
	// Name is the pod's name, and Node the node's.
	Name string `json:"name"`
	Node string `json:"node"`
	// Seq counts the stamps of a run from 1.
	Seq uint64 `json:"seq"`
	// Mono is CLOCK_MONOTONIC of the machine, which is one clock for all its containers, and Wall the time of day.
	Mono time.Duration `json:"mono"`
	Wall time.Time     `json:"wall"`
}

// Line returns the written form of the stamp, with its newline.
func (s Stamp) Line() ([]byte, error) {
	line, err := json.Marshal(s)
	return append(line, '\n'), err
}

// Writer identifies the writer of stamps.
type Writer struct {
	Pod        types.UID
	Run        string
	Name, Node string
	// First and Last are the positions of its first and last stamp, from 0, and Count is how many it has written.
	First, Last, Count int
	// Began and Ended are the times of these two (CLOCK_MONOTONIC).
	Began, Ended time.Duration
}

func (w Writer) String() string {
	return fmt.Sprintf("pod %s (UID %s) on %s: %d stamps from position %d to %d", w.Name, w.Pod, w.Node, w.Count,
		w.First, w.Last)
}

// Overlap is a pair of writers that wrote to the volume at the same time.
type Overlap struct {
	// First began to write before Second did, and has written Late stamps after that.
	First, Second Writer
	Late          int
	// For is the time from the second writer's first stamp to the first writer's last one.
	For time.Duration
}

func (o Overlap) String() string {
	return fmt.Sprintf("%s wrote %d stamps, for %s, after the first stamp of %s", o.First, o.Late,
		o.For.Round(time.Millisecond), o.Second)
}

// ErrDamaged is returned for a file with a line that no writer writes.
var ErrDamaged = errors.New("file of stamps is damaged")

// Read returns the stamps of a file in the order of the writes, and none if the file does not exist. Text after the
// last newline is a write under way, and omitted.
func Read(path string) ([]Stamp, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read stamps: %w", err)
	}
	return Parse(data)
}

// Parse is Read of a file's content. A line that is no stamp, and a writer's count that does not go up by one from 1,
// is an [ErrDamaged].
func Parse(data []byte) ([]Stamp, error) {
	var stamps []Stamp
	counts := map[string]uint64{} // by run
	for line := 1; ; line++ {
		text, rest, whole := bytes.Cut(data, []byte{'\n'})
		if !whole {
			return stamps, nil
		}
		data = rest
		var s Stamp
		if err := json.Unmarshal(text, &s); err != nil {
			return stamps, fmt.Errorf("read stamps: line %d: %w: %w", line, ErrDamaged, err)
		}
		if s.Pod == "" || s.Run == "" || s.Seq != counts[s.Run]+1 {
			return stamps, fmt.Errorf("read stamps: line %d: %w: stamp %d of pod %q after its stamp %d", line, ErrDamaged,
				s.Seq, s.Pod, counts[s.Run])
		}
		counts[s.Run] = s.Seq
		stamps = append(stamps, s)
	}
}

// Writers returns the writers of the stamps, in the order of their first stamps.
func Writers(stamps []Stamp) []Writer {
	var writers []Writer
	index := map[string]int{} // by run
	for position, s := range stamps {
		at, known := index[s.Run]
		if !known {
			at = len(writers)
			index[s.Run] = at
			writers = append(writers, Writer{Pod: s.Pod, Run: s.Run, Name: s.Name, Node: s.Node, First: position,
				Began: s.Mono})
		}
		w := &writers[at]
		w.Last, w.Ended = position, s.Mono
		w.Count++
	}
	return writers
}

// Overlaps returns each pair of writers that wrote to the volume at the same time, in the order of their first stamps.
// None means that each writer's last stamp stands before the next one's first.
func Overlaps(stamps []Stamp) []Overlap {
	var overlaps []Overlap
	writers := Writers(stamps)
	for i, first := range writers {
		for _, second := range writers[i+1:] {
			if first.Last < second.First {
				continue
			}
			overlap := Overlap{First: first, Second: second, For: first.Ended - second.Began}
			for _, s := range stamps[second.First:] {
				if s.Run == first.Run {
					overlap.Late++
				}
			}
			overlaps = append(overlaps, overlap)
		}
	}
	return overlaps
}
