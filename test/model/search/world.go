package search

import (
	"fmt"
	"reflect"
	"strings"
)

// World has Players.
type World interface {
	Player() Player
	GetPurpose() *Purpose
}

// Purpose says what a world is for. Each kind of world embeds it.
type Purpose struct {
	// Name is the name in tables and on the command line, and About the purpose in a sentence.
	Name, About string
	// Constants are constants that matter for the purpose, and the reasons why they hide no error.
	Constants []string
	// Deep worlds are explored only when asked for.
	Deep bool
}

// About returns the purpose of a world.
func About(name, about string, constants ...string) Purpose {
	return Purpose{name, about, constants, false}
}

// Deep returns the purpose of a world that is explored only when asked for.
func Deep(name, about string, constants ...string) Purpose {
	return Purpose{name, about, constants, true}
}

// GetPurpose returns the purpose of a world that embeds it.
func (p *Purpose) GetPurpose() *Purpose { return p }

// All returns the worlds of one kind.
func All[W any, P interface {
	*W
	World
}](worlds []W) (all []World) {
	for i := range worlds {
		all = append(all, P(&worlds[i]))
	}
	return all
}

// Bounds describes the bounds of a world, by its fields and its budget.
func Bounds(w World) string { return strings.Join(bounds(reflect.ValueOf(w).Elem()), ", ") }

// bounds describes each exported field of a struct that is not zero.
func bounds(of reflect.Value) (words []string) {
	for i := range of.NumField() {
		field, is := of.Type().Field(i), of.Field(i)
		switch {
		case is.IsZero(), !field.IsExported(), field.Type == reflect.TypeFor[Purpose]():
		case field.Name == "Budget":
			words = append(words, bounds(is)...)
		case is.Kind() == reflect.Bool:
			words = append(words, field.Name)
		default:
			words = append(words, fmt.Sprintf("%s %v", field.Name, is))
		}
	}
	return words
}
