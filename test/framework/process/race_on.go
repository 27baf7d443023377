//go:build unix && race

package process

const raceEnabled = true
