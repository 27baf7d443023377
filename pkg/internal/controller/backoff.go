package controller

import (
	"math/rand/v2"
	"time"
)

// Backoff is a delay that doubles with each try in a row, from First up to Max. The zero
// value is no delay at all.
type Backoff struct {
	First, Max time.Duration
}

// jitter is the part of each delay that is random, so that what failed together is not
// tried again together.
const jitter = 0.2

// delay returns how long to wait after the given number of earlier tries in a row; random
// is from [0, 1).
func (b Backoff) delay(tries int, random float64) time.Duration {
	d := b.First
	for range tries {
		if d >= b.Max/2 {
			d = b.Max
			break
		}
		d *= 2
	}
	d = min(d, b.Max)
	return d - time.Duration(jitter*random*float64(d))
}

func draw() float64 { return rand.Float64() }
