// Package reference makes the reference pages of docs/ from the code: events and reasons, and metrics. It has
// tests alone.
package reference
