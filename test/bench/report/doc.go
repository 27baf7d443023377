// Package report holds the figures of a measurement, judges them by their goals, and writes them as report.json and
// report.md. It measures nothing: package bench does.
package report
