package main

import "fmt"

const (
	// prefix begins the names that are added to a package.
	prefix = "mutation__"
	// variable is the environment variable that selects a mutant by its number.
	variable = "MUTATION"
	// reachedVariable is the environment variable that names the file to which the numbers of mutants are written
	// that are reached.
	reachedVariable = "MUTATION_REACHED"
)

// active is the expression which says that a mutant is the selected one.
func active(number int) string { return fmt.Sprintf("%sOn(%d)", prefix, number) }

// switches returns the file that is added to a package: by it, the compiled mutants learn which of them is active.
func switches(name string, mutants int) string {
	return fmt.Sprintf(switchesTemplate, name, mutants+1, variable, reachedVariable)
}

const switchesTemplate = `package %[1]s

import (
	"os"
	"strconv"
	"sync/atomic"
)

var (
	mutation__active  = func() int { n, _ := strconv.Atoi(os.Getenv("%[3]s")); return n }()
	mutation__log     = func() *os.File {
		if path := os.Getenv("%[4]s"); path != "" {
			f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				panic(err)
			}
			return f
		}
		return nil
	}()
	mutation__reached [%[2]d]atomic.Bool
)

func mutation__On(n int) bool {
	if mutation__log != nil {
		mutation__note(n)
	}
	return n == mutation__active
}

func mutation__note(n int) {
	if !mutation__reached[n].Swap(true) {
		_, _ = mutation__log.WriteString(strconv.Itoa(n) + "\n")
	}
}

func mutation__Zero[T any](n int, value T) T {
	if mutation__On(n) {
		var zero T
		return zero
	}
	return value
}

func mutation__Pick[T any](n int, value, other T) T {
	if mutation__On(n) {
		return other
	}
	return value
}

func mutation__Without[S ~[]E, E any](first, count int, list S) S {
	for i := range count {
		if mutation__On(first + i) {
			return append(list[:i:i], list[i+1:]...)
		}
	}
	return list
}

func mutation__Less[M ~map[K]V, K comparable, V any](n int, key K, all M) M {
	if mutation__On(n) {
		delete(all, key)
	}
	return all
}
`
