//! Tests of events that a driver must not send.

use tierflow_plan::{
    Command, Event, ExtentSize, Misuse, Plan, PlanConfig, Stored, Ticket, TierConfig, TierId,
    TransferFailure, TransferId,
};

/// The plan refuses misuse, and its later commands are the same as without the misuse.
#[test]
fn misuse_is_refused_and_changes_nothing() {
    let tier = |capacity| TierConfig {
        alignment: 1,
        ..TierConfig::new(capacity)
    };
    let config = || PlanConfig {
        extents: ExtentSize::default(),
        ..PlanConfig::new(vec![tier(10), tier(100)])
    };
    let plan = || Plan::new(config()).unwrap();
    let ticket = Ticket(1);
    let other = Ticket(9);
    let checkpoint = |version| Event::Checkpoint {
        ticket,
        version,
        size: 8,
    };
    let first = TransferId(0);
    let stored = Some(Stored {
        bytes: 1,
        alone: true,
    });
    let tell = |plan: &mut Plan, event: &Event| {
        let mut commands = Vec::new();
        let told = plan.handle(0, event.clone(), &mut commands);
        plan.check().unwrap();
        (told, commands)
    };
    let history = [
        checkpoint(0),
        Event::Written { ticket, ok: true },
        Event::Wait {
            ticket: Ticket(2),
            version: None,
        },
        Event::TransferDone {
            id: first,
            stored: None,
        },
        Event::Restore { ticket, version: 0 },
        Event::Read { ticket, ok: true },
    ];
    // Events that contradict the plan's state, each with the number of events above that come before it.
    let misuses = [
        (1, checkpoint(7), Misuse::TicketInUse(ticket)),
        (
            1,
            Event::Drop { ticket, version: 0 },
            Misuse::TicketInUse(ticket),
        ),
        (
            0,
            Event::Written { ticket, ok: true },
            Misuse::NotGranted(ticket),
        ),
        (
            2,
            Event::Written { ticket, ok: true },
            Misuse::NotGranted(ticket),
        ),
        (
            1,
            Event::Read { ticket, ok: true },
            Misuse::NotGranted(ticket),
        ),
        (
            6,
            Event::Read {
                ticket: other,
                ok: false,
            },
            Misuse::NotGranted(other),
        ),
        (
            1,
            Event::TransferDone {
                id: first,
                stored: None,
            },
            Misuse::NoTransfer(first),
        ),
        (
            3,
            Event::TransferDone { id: first, stored },
            Misuse::WrongCoding(first),
        ),
        (
            4,
            Event::TransferFailed {
                id: first,
                why: TransferFailure::Source,
            },
            Misuse::NoTransfer(first),
        ),
        (
            2,
            Event::WrittenAtOnce {
                version: 0,
                size: 1,
            },
            Misuse::NotAtOnce(0),
        ),
        (1, Event::ReadAtOnce { version: 0 }, Misuse::NotAtOnce(0)),
        (
            0,
            Event::Limit {
                tier: TierId(2),
                bytes: 0,
            },
            Misuse::NoTier(TierId(2)),
        ),
        (
            3,
            Event::Adopt {
                version: 5,
                size: 1,
                tier: TierId(3),
                difference: None,
            },
            Misuse::NoTier(TierId(3)),
        ),
    ];
    let mut without = plan();
    let expected: Vec<_> = history
        .iter()
        .map(|event| tell(&mut without, event))
        .collect();
    let commands: Vec<_> = expected.iter().flat_map(|(_, commands)| commands).collect();
    assert!(commands.iter().any(|c| matches!(c, Command::Transfer(_))));
    assert!(commands.contains(&&Command::Done { ticket: Ticket(2) }));
    for (after, event, misuse) in misuses {
        let mut plan = plan();
        for (at, known) in history.iter().enumerate() {
            if at == after {
                assert_eq!(
                    tell(&mut plan, &event),
                    (Err(misuse), Vec::new()),
                    "{event:?}"
                );
            }
            assert_eq!(
                tell(&mut plan, known),
                expected[at],
                "{event:?} changed something"
            );
        }
        if after == history.len() {
            assert_eq!(tell(&mut plan, &event), (Err(misuse), Vec::new()));
        }
        assert_eq!(plan.statistics(), without.statistics());
    }
}
