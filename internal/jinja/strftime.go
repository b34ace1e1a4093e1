package jinja

import (
	"fmt"
	"strings"
	"time"
)

// strftime formats a time as Python's datetime.strftime does in the C locale. A "-" after the percent sign drops
// leading zeros, as glibc has it.
func strftime(t time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		plain := false
		if format[i] == '-' && i+1 < len(format) {
			plain = true
			i++
		}
		s, ok := directive(t, format[i])
		if !ok {
			b.WriteByte('%')
			if plain {
				b.WriteByte('-')
			}
			b.WriteByte(format[i])
			continue
		}
		if plain {
			if s = strings.TrimLeft(s, "0 "); s == "" {
				s = "0"
			}
		}
		b.WriteString(s)
	}
	return b.String()
}

func directive(t time.Time, c byte) (string, bool) {
	layouts := map[byte]string{
		'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'd': "02", 'm': "01", 'y': "06", 'H': "15", 'I': "03",
		'M': "04", 'S': "05", 'p': "PM", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05", 'D': "01/02/06",
		'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'e': "_2", 'r': "03:04:05 PM",
	}
	if l, ok := layouts[c]; ok {
		return t.Format(l), true
	}
	isoYear, isoWeek := t.ISOWeek()
	week := func(first time.Weekday) int { // weeks that start on first; days before the first such day are in week 0
		return (t.YearDay() + 6 - (int(t.Weekday())-int(first)+7)%7) / 7
	}
	switch c {
	case 'Y':
		return fmt.Sprintf("%d", t.Year()), true
	case 'C':
		return fmt.Sprintf("%02d", t.Year()/100), true
	case 'G':
		return fmt.Sprintf("%d", isoYear), true
	case 'V':
		return fmt.Sprintf("%02d", isoWeek), true
	case 'U':
		return fmt.Sprintf("%02d", week(time.Sunday)), true
	case 'W':
		return fmt.Sprintf("%02d", week(time.Monday)), true
	case 'j':
		return fmt.Sprintf("%03d", t.YearDay()), true
	case 'k':
		return fmt.Sprintf("%2d", t.Hour()), true
	case 'l':
		return fmt.Sprintf("%2d", (t.Hour()+11)%12+1), true
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000), true
	case 'w':
		return fmt.Sprintf("%d", int(t.Weekday())), true
	case 'u':
		return fmt.Sprintf("%d", (int(t.Weekday())+6)%7+1), true
	case 's':
		return fmt.Sprintf("%d", t.Unix()), true
	case 'z', 'Z': // the clock of a job has no zone, like Python's datetime.now()
		return "", true
	case 'n':
		return "\n", true
	case 't':
		return "\t", true
	case '%':
		return "%", true
	}
	return "", false
}
